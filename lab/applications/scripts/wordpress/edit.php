<?php
// Changes WordPress as its own code does: php edit.php SITE_FOLDER WHAT MARKER
require $argv[1] . '/wp-load.php';

function must($result)
{
    if (!$result || is_wp_error($result)) {
        fwrite(STDERR, is_wp_error($result) ? $result->get_error_message() : 'nothing was changed');
        exit(1);
    }
    return $result;
}

// `$post` and the like are global variables of WordPress, so everything is in functions.
function post(string $name)
{
    return must(get_page_by_path($name, OBJECT, 'post'));
}

function change(string $what, string $marker): void
{
    switch ($what) {
        case 'update-post':
            must(wp_update_post(['ID' => post('post-2')->ID, 'post_content' => "<p>This is post 2, $marker</p>"], true));
            break;
        case 'new-post':
            $older = get_posts(['s' => 'News of', 'numberposts' => -1]);
            must(wp_insert_post([
                'post_title' => "News of $marker",
                'post_content' => "<p>This is new, $marker</p>",
                'post_status' => 'publish',
                'post_author' => 1,
            ], true));
            foreach ($older as $post) {
                must(wp_delete_post($post->ID, true));
            }
            break;
        case 'approve-comment':
            $older = get_comments(['author_email' => 'another@example.com']);
            $id = must(wp_insert_comment([
                'comment_post_ID' => post('post-3')->ID,
                'comment_author' => 'Another reader',
                'comment_author_email' => 'another@example.com',
                'comment_content' => "I say $marker",
                'comment_approved' => 0,
            ]));
            must(wp_set_comment_status($id, 'approve', true));
            foreach ($older as $comment) {
                must(wp_delete_comment($comment, true));
            }
            break;
        case 'site-title':
            must(update_option('blogname', "A site of WordPress $marker"));
            break;
        default:
            fwrite(STDERR, "`$what` is not known");
            exit(1);
    }
}

change($argv[2], $argv[3]);
